"""Write `image_records.json` and `.npz`: 1.9.1's image iterators over RecordIO files, and image functions.

    mxnet-1.9.1-python make/image_records.py    # in tests/golden

The images are in the file; PNG keeps them exactly, so that results do not depend on a JPEG decoder.
"""

import json
import os
import random
import struct
import tempfile
import zlib

import mxnet as mx
import numpy as np

SIZES = [(12, 16), (20, 14), (24, 30), (16, 16), (9, 11), (40, 26), (18, 18)]
RECORDS = {
    "plain": {},
    "resize": {"resize": 10},
    "resize_below": {"resize": 6},
    "pad": {"pad": 3, "fill_value": 40},
    "pad_resize": {"pad": 2, "resize": 9, "fill_value": 0},
    "upscale": {"data_shape": (3, 20, 24)},
    "upscale_pad": {"data_shape": (3, 20, 24), "pad": 1},
    **{f"inter{k}": {"inter_method": k, "resize": 9} for k in (0, 2, 3, 4, 9)},
    "inter_up": {"inter_method": 9, "data_shape": (3, 20, 24)},
    "mirror": {"mirror": True},
    "norm": {"mean_r": 10, "mean_g": 20, "mean_b": 30, "std_r": 2, "std_g": 3, "std_b": 4, "scale": 0.5},
    "mean_only": {"mean_g": 20},
    "grey": {"data_shape": (1, 8, 8)},
    "rotate90": {"rotate": 90},
    "rotate30": {"rotate": 30, "fill_value": 0},
    "aspect": {"max_aspect_ratio": 1.5, "min_aspect_ratio": 1.5},
    "random_scale": {"max_random_scale": 1.5, "min_random_scale": 1.5},
    "max_img": {"max_img_size": 10},
    "min_img": {"min_img_size": 36},
    "crop_size": {"min_crop_size": 9, "max_crop_size": 9},
    "resized_crop_of_all": {"random_resized_crop": True},
    "many": {"resize": 20, "rotate": 45, "pad": 1, "mirror": True, "mean_r": 3, "scale": 2.0},
    "not_square": {"data_shape": (3, 6, 9), "resize": 9},
    "mean_img": {"mean_img": "mean.bin"},
    "uint8": {"iterator": "ImageRecordUInt8Iter", "mean_r": 10, "scale": 0.5},
    "int8": {"iterator": "ImageRecordInt8Iter", "mean_r": 10, "scale": 0.5},
    "dtype": {"dtype": "uint8"},
    "old": {"iterator": "ImageRecordIter_v1"},
    "labels": {"path_imgrec": "wide.rec", "label_width": 3},
    "imglist": {"path_imglist": "list.lst"},
    "batch": {"batch_size": 3},
    "large_batch": {"batch_size": 9},
    "part": {"batch_size": 2, "num_parts": 2, "part_index": 1},
    "part_of_index": {"batch_size": 2, "num_parts": 2, "part_index": 0, "path_imgidx": "plain.idx"},
}
DETECTION = {
    "plain": {},
    "label_width": {"label_pad_width": 20, "label_pad_value": -3.0},
    "mirror": {"rand_mirror_prob": 1.0},
    "norm": {"mean_r": 10, "std_g": 2, "scale": 0.5, "mean_b": 3.0},
    "fit": {"resize_mode": "fit", "data_shape": (3, 20, 24)},
    "shrink": {"resize_mode": "shrink", "data_shape": (3, 20, 24)},
    "force": {"data_shape": (3, 20, 24)},
    "resize_shrink": {"resize": 9, "resize_mode": "shrink"},
    "batch": {"batch_size": 3},
    "inter9": {"inter_method": 9},
    "part": {"num_parts": 2, "part_index": 1, "batch_size": 2},
}
EIGENVALUES = np.array([55.46, 4.794, 1.148])
EIGENVECTORS = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])


def png(image):
    """A PNG file (RFC 2083) of an RGB image, without filters."""

    def chunk(kind, content):
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", image.shape[1], image.shape[0], 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def pictures():
    generator = np.random.RandomState(7)
    for number, (rows, columns) in enumerate(SIZES):
        y, x = np.mgrid[:rows, :columns]
        waves = [127 + 100 * np.sin(x / 3 + number), 127 + 100 * np.cos(y / 4 - number), (x * y * 3) % 256]
        noise = generator.randn(rows, columns, 3) * 6
        yield np.clip(np.stack(waves, -1) + noise, 0, 255).astype(np.uint8)


def objects(number):
    label = [2.0, 5.0]
    for entry in range(number % 3 + 1):
        label += [float(entry), 0.1 + 0.1 * entry, 0.2, 0.5 + 0.1 * entry, 0.7 + 0.05 * entry]
    return label


def small(array):
    """The array in a small type that holds it exactly."""
    for kind in ("uint8", "int8", "float16"):
        if (array.astype(kind).astype(array.dtype) == array).all():
            return array.astype(kind)
    return array


def run(iterator, name, arrays):
    labels, pads = [], []
    for epoch in range(2):
        if epoch:
            iterator.reset()
        for batch in iterator:
            arrays.setdefault(name, small(batch.data[0].asnumpy()))
            labels.append(batch.label[0].asnumpy().tolist())
            pads.append(batch.pad)
    described = [[one[0], list(one[1])] for one in iterator.provide_data + iterator.provide_label]
    kind = np.dtype(batch.data[0].dtype).name
    return {"labels": labels, "pads": pads, "described": described, "dtype": kind}


def functions(image, arrays):
    """Image functions and augmenters, with what they draw set to a number."""
    module = mx.image
    whole = mx.nd.array(image, dtype="uint8")
    real = whole.astype("float32")
    planes = real.transpose((2, 0, 1))
    found = {
        "imresize": module.imresize(whole, 9, 7),
        "imresize_cubic": module.imresize(real, 9, 7, 2),
        "imresize_area": module.imresize(whole, 9, 7, 3),
        "resize_short": module.resize_short(whole, 8),
        "resize_short_up": module.resize_short(whole, 20, 1),
        "fixed_crop": module.fixed_crop(whole, 1, 2, 5, 6, (8, 9), 1),
        "fixed_crop_beyond": module.fixed_crop(whole, 10, 2, 50, 6),
        "center_crop": module.center_crop(whole, (8, 6))[0],
        "center_crop_up": module.center_crop(whole, (40, 30), 1)[0],
        "normalize": module.color_normalize(real.copy(), mx.nd.array([1, 2, 3]), mx.nd.array([1, 2, 4])),
        "rotate": module.imrotate(planes, 30),
        "rotate_in": module.imrotate(planes, -100, True),
        "rotate_out": module.imrotate(planes, 30, False, True),
        "rotate_batch": module.imrotate(mx.nd.stack(planes, planes * 2), mx.nd.array([30, -45.0])),
        "border": module.image.copyMakeBorder(whole, 1, 2, 3, 4, 0, 7.0),
        "border_reflect": module.image.copyMakeBorder(whole, 1, 2, 3, 4, 2),
        "gray": module.RandomGrayAug(1.0)(real.copy()),
        "flip": module.HorizontalFlipAug(1.0)(whole),
    }
    uniform, normal = random.uniform, np.random.normal
    for drawn in (0.25, -0.2):
        module.image.random.uniform = lambda low, high, drawn=drawn: drawn
        for kind in ("Brightness", "Contrast", "Saturation", "Hue"):
            augmenter = getattr(module, f"{kind}JitterAug")(0.3)
            found[f"{kind}{drawn}"] = augmenter(real.copy())
    module.image.random.uniform = uniform
    np.random.normal = lambda *args, **kwargs: np.array([0.1, -0.2, 0.3])
    found["Lighting"] = module.LightingAug(0.1, EIGENVALUES, EIGENVECTORS)(real.copy())
    np.random.normal = normal
    arrays.update({f"function/{name}": small(array.asnumpy()) for name, array in found.items()})


def main():
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    arrays, cases = {}, {"records": {}, "detection": {}}
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        indexed = mx.recordio.MXIndexedRecordIO
        writers = {n: indexed(n + ".idx", n + ".rec", "w") for n in ("plain", "wide", "det")}
        for number, image in enumerate(pictures()):
            arrays[f"image/{number}"] = image
            wide = [number, number + 0.5, number * 2]
            for name, label in (("plain", float(number)), ("wide", wide), ("det", objects(number))):
                if name != "det" or number < 5:
                    header = mx.recordio.IRHeader(0, label, number, 0)
                    writers[name].write_idx(number, mx.recordio.pack(header, png(image)))
        for writer in writers.values():
            writer.close()
        with open("list.lst", "w") as file:
            file.writelines(f"{number}\t{number * 10}\tp{number}.png\n" for number in range(len(SIZES)))
        common = {"preprocess_threads": 1, "prefetch_buffer": 1}
        for name, options in RECORDS.items():
            given = {"path_imgrec": "plain.rec", "batch_size": 7, "data_shape": (3, 8, 8), **common}
            given.update(options)
            iterator = getattr(mx.io, given.pop("iterator", "ImageRecordIter"))(**given)
            cases["records"][name] = {"options": options, **run(iterator, f"records/{name}", arrays)}
        for name, options in DETECTION.items():
            given = {"path_imgrec": "det.rec", "batch_size": 5, "data_shape": (3, 8, 10), **common, **options}
            result = run(mx.io.ImageDetRecordIter(**given), f"detection/{name}", arrays)
            cases["detection"][name] = {"options": options, **result}
        given = {"path_imgrec": "plain.rec", "path_imgidx": "plain.idx"}
        cases["ImageIter"] = run(mx.image.ImageIter(3, (3, 8, 8), **given), "ImageIter", arrays)
        given = {"path_imgrec": "det.rec", "path_imgidx": "det.idx"}
        cases["ImageDetIter"] = run(mx.image.ImageDetIter(3, (3, 8, 10), **given), "ImageDetIter", arrays)
    functions(arrays["image/0"], arrays)
    with open(os.path.join(folder, "image_records.json"), "w") as file:
        json.dump(cases, file)
        file.write("\n")
    np.savez_compressed(os.path.join(folder, "image_records.npz"), **arrays)


main()
