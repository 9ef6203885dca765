"""The constructor's decisions: demand, grids and pilots in, a plan out.  Pure, no I/O."""
