"""A bundle: what ``export`` hands to the device. One folder of files (ONNX graphs, embeddings, tokenizer, statistics)
and a manifest with the size and SHA-256 of each. ``open_bundle`` believes nothing before it has been verified,
``BundleWriter`` leaves a whole bundle or none."""

from handrail.runtime.bundle.manifest import About, FileEntry, Manifest, Source
from handrail.runtime.bundle.reading import Bundle, open_bundle
from handrail.runtime.bundle.writing import BundleWriter, check_destination
from handrail.streams.errors import BundleError

__all__ = [
    "About", "Bundle", "BundleError", "BundleWriter", "FileEntry", "Manifest", "Source", "check_destination",
    "open_bundle",
]  # fmt: skip
