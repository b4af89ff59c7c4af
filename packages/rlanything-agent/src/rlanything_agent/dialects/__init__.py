"""The APIs that programs may speak to the endpoint, one file each."""
