"""A Flower app on CIFAR-10 in the shape of the usual first tutorial: a small convolutional network, SGD, FedAvg."""
