"""The data: scikit-learn's handwritten digits, 1,797 images of 8×8 pixels with values 0 to 16."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Digits", "MissingImagesError", "load_digits"]

#: Images held out of training, on which accuracy is measured.
TEST_IMAGES = 360


class MissingImagesError(RuntimeError):
    """The package that holds the images is not installed."""


@dataclass(frozen=True)
class Digits:
    """Images as rows of 64 pixels (float32) and their digits, split in two disjoint sets."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load_digits(seed: int) -> Digits:
    """Return the images, shuffled and split by ``seed``.

    Raises
    ------
    MissingImagesError
        If scikit-learn, whose package holds the images, is not installed.
    """
    try:
        from sklearn import datasets
    except ImportError:
        raise MissingImagesError("the demo's images come with scikit-learn: "
                                 "pip install 'supernode-emulator[demo]'") from None
    images, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    images, labels = images[order].astype(np.float32), labels[order].astype(np.int64)
    return Digits(train_images=images[TEST_IMAGES:], train_labels=labels[TEST_IMAGES:],
                  test_images=images[:TEST_IMAGES], test_labels=labels[:TEST_IMAGES])
