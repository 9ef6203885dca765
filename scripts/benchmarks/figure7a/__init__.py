"""The paper's Figure 7(a): a run, how well its order follows Rank, and a picture of it."""
