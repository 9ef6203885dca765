"""What becomes of a replica, in words that all rooms of the server share."""

# Why a replica has expired before its deadline.
GIVEN_BACK = ("pilot_ended", "client_left", "host_banned", "client_revoked")
