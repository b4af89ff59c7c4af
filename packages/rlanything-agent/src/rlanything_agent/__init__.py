"""The agent domain: agents are your own programs, which call the policy through the APIs of
OpenAI or Anthropic."""
