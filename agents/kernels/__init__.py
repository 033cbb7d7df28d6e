"""Kernels: the updates of standard networks in NumPy, with the gradients written out.

The losses in `rltune.agents.algorithms` stay the definition; kernels compute the same. They work on
the memory of PyTorch's own parameters, so modules, optimizers and checkpoints know nothing of them.
For small networks PyTorch spends most of its time on dispatch and on building graphs.

Rows lie side by side: an array is (features, rows), or (networks, features, rows).
"""
