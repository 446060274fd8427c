//! SHELL: the task engine: create, get, answer, cancel, watch, recover, drain; admission, runs, sweep.
