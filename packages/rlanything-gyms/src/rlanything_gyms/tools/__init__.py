"""Tools to call: classes as TRL's `environment_factory` takes them, and MCP servers."""
