"""The agent domain: agents are your own programs, which call the policy through the OpenAI API."""
