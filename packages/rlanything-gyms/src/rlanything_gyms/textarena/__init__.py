"""TextArena's games of words, for one player or against an opponent."""
