"""The overlay constructor: submits pilots to clusters and grids as the BOTs demand."""
