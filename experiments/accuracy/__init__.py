"""How much is learned from each way of training, each program and each kind of knowledge?"""
