"""What all views share: services of the process, authentication, answers, slow readers."""
