"""The same recipe on a cluster: compiled for verl, and our learning rule inside it.

names, table, refusals, compile, overrides, data_files, start    need no verl
estimators, losses                                              pure functions, registered by
plugin                                                          what verl imports everywhere
agent_loop, reward, engine, update, worker, trainer             run in verl's processes

Outside of verl this package imports without it. docs/scale-out.md is the guide.
"""
