"""Running operators: the mode of the thread, the one way an operator is invoked, tracing, autograd."""
