"""The engine: Celery tasks, durable turn execution, context, models and tools."""
