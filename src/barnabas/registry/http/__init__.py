"""The registry's REST API over HTTP."""
