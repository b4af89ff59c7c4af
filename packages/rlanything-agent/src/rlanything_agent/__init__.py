"""The domain of agents that are programs of somebody's own, which speak the OpenAI API."""
