"""What happens to jobs without a host asking: decisions, deadlines, replication, clean-up."""
