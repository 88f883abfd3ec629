"""Plans on CUDA: layouts that cuDNN likes, and programs replayed as CUDA graphs.

Everything that is asked of ``torch.cuda`` goes through `seam`, so that all decisions can be tested on a
machine without a GPU. Operators are torch's public ones only, which run on any device.
"""
