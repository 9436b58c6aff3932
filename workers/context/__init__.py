"""Context management: what a request to a model holds, and how it is made to fit."""
