"""A judge as a service."""
