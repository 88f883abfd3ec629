"""Train a multi-layer perceptron on MNIST's IDX files, as scripts of 2015 do it."""
# ruff: noqa: UP010, UP031

from __future__ import print_function

import argparse
import logging
import os

import mxnet as mx
import numpy as np


def get_mlp():
    """Three fully connected layers."""
    data = mx.symbol.Variable('data')
    drop0 = mx.symbol.Dropout(data=data, p=0.2, name='drop0')
    fc1 = mx.symbol.FullyConnected(data=drop0, name='fc1', num_hidden=512)
    act1 = mx.symbol.Activation(data=fc1, name='relu1', act_type="relu")
    drop1 = mx.symbol.Dropout(data=act1, p=0.4, name='drop1')
    fc2 = mx.symbol.FullyConnected(data=drop1, name='fc2', num_hidden=128)
    act2 = mx.symbol.Activation(data=fc2, name='relu2', act_type="relu")
    fc3 = mx.symbol.FullyConnected(data=act2, name='fc3', num_hidden=10)
    mlp = mx.symbol.SoftmaxOutput(data=fc3, name='softmax')
    return mlp


def get_iterator(args):
    """Iterators over the training and the test images."""
    train = mx.io.MNISTIter(
        image=os.path.join(args.data_dir, "train-images-idx3-ubyte"),
        label=os.path.join(args.data_dir, "train-labels-idx1-ubyte"),
        data_shape=(784,),
        batch_size=args.batch_size,
        shuffle=True,
        flat=True,
        silent=False,
        seed=10)
    val = mx.io.MNISTIter(
        image=os.path.join(args.data_dir, "t10k-images-idx3-ubyte"),
        label=os.path.join(args.data_dir, "t10k-labels-idx1-ubyte"),
        data_shape=(784,),
        batch_size=args.batch_size,
        flat=True,
        shuffle=False)
    return train, val


def parse_args():
    parser = argparse.ArgumentParser(description='train an image classifer on mnist')
    parser.add_argument('--data-dir', type=str, default='mnist/')
    parser.add_argument('--gpus', type=str)
    parser.add_argument('--batch-size', type=int, default=50)
    parser.add_argument('--lr', type=float, default=.1)
    parser.add_argument('--model-prefix', type=str)
    parser.add_argument('--num-epochs', type=int, default=12)
    parser.add_argument('--kv-store', type=str, default='local')
    return parser.parse_args()


def main():
    args = parse_args()
    head = '%(asctime)-15s Node[0] %(message)s'
    logging.basicConfig(level=logging.DEBUG, format=head)
    mx.random.seed(1)
    kv = mx.kvstore.create(args.kv_store)
    train, val = get_iterator(args)
    devs = mx.cpu() if args.gpus is None else [mx.gpu(int(i)) for i in args.gpus.split(',')]
    lr_scheduler = mx.lr_scheduler.FactorScheduler(step=240, factor=0.6)

    mod = mx.mod.Module(context=devs, symbol=get_mlp())
    mod.fit(
        train_data=train,
        eval_data=val,
        eval_metric='acc',
        optimizer='sgd',
        optimizer_params={
            'learning_rate': args.lr,
            'momentum': 0.9,
            'wd': 0.0001,
            'lr_scheduler': lr_scheduler},
        num_epoch=args.num_epochs,
        initializer=mx.init.Xavier(factor_type="in", magnitude=2.34),
        kvstore=kv,
        batch_end_callback=mx.callback.Speedometer(args.batch_size, 20),
        epoch_end_callback=mx.callback.do_checkpoint(args.model_prefix))

    # Two ways back from the checkpoint.
    sym, arg_params, aux_params = mx.model.load_checkpoint(args.model_prefix, args.num_epochs)
    loaded = mx.mod.Module(symbol=sym, context=devs)
    loaded.bind(for_training=False, data_shapes=val.provide_data, label_shapes=val.provide_label)
    loaded.set_params(arg_params, aux_params)
    print('accuracy after load_checkpoint: %.4f' % dict(loaded.score(val, 'acc'))['accuracy'])

    again = mx.mod.Module.load(args.model_prefix, args.num_epochs, context=devs)
    again.bind(data_shapes=val.provide_data, for_training=False)
    val.reset()
    prob = again.predict(val).asnumpy()
    val.reset()
    label = np.concatenate([batch.label[0].asnumpy() for batch in val])
    print('accuracy after Module.load: %.4f' % (prob.argmax(axis=1) == label).mean())

    # The features of an inner layer.
    internals = sym.get_internals()
    feature = mx.mod.Module(symbol=internals['relu2_output'], label_names=None, context=devs)
    feature.bind(for_training=False, data_shapes=val.provide_data)
    feature.set_params(arg_params, aux_params)
    print('features: %s' % (feature.predict(val, num_batch=2).shape,))


if __name__ == "__main__":
    main()
