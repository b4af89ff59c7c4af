"""Harbor task folders, played in a box or a container."""
