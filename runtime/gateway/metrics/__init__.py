"""What /metrics says: the gateway's own figures, the scheduler's, and the same under other servers' names."""
