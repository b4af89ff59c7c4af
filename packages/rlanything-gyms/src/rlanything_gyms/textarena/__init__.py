"""TextArena's word games, for one player or against an opponent."""
