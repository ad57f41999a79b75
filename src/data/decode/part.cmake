# From bytes to arrays: images, text, augmentation.
