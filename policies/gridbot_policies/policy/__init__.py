"""The policies of BOTs and of host owners, and the ads that they see."""
