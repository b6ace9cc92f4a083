"""What `pip install` reads, and what Dataflow workers are set up with (Beam's --setup_file)."""

import os
import runpy
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, PlatformError

HERE = Path(__file__).parent


class BuildExt(build_ext):
    """Build what is in C; where no compiler can, say in one sentence what to do."""

    def run(self) -> None:
        try:
            super().run()
        except (CompileError, PlatformError) as error:
            raise SystemExit(
                f"A part of t5prep is in C, and no compiler built it ({str(error)[:60]}). Install t5prep from a wheel, or install "
                "a C compiler (`apt install gcc`; on macOS `xcode-select --install`) and try again."
            ) from None


def in_c(folder: str) -> Extension:
    """Return what is built of the C sources of a package."""
    native = Path(folder) / "native"
    return Extension(
        f"{folder.replace('/', '.')}._native",
        sources=sorted(str(path.relative_to(HERE)) for path in (HERE / native).glob("*.c")),
        depends=sorted(str(path.relative_to(HERE)) for path in (HERE / native).glob("*.h")),
        extra_compile_args=["-std=c99", "-O3", "-ffp-contract=off"] if os.name == "posix" else [],
        libraries=["m"] if os.name == "posix" else [],
        py_limited_api=True,
    )


# What preparing needs, and nothing else: this is what every Beam worker installs.
BASE = [
    "apache-beam>=2.77,<2.78",  # 2.68 changed what DirectRunner means; a minor version is a decision
    "cattrs>=25.1,<27",
    "charset-normalizer>=3.4,<4",
    "click>=8.1,<9",
    "filelock>=3.16,<5",
    "google-cloud-storage>=3.1,<4",
    "google-crc32c>=1.7,<2",
    "huggingface-hub>=1.0,<3",
    "kagglehub>=1.0,<2",
    "numpy>=2.0,<3",
    "packaging>=24,<27",
    "pyarrow>=18,<27",
    "requests>=2.32,<3",
    "selectolax>=0.4,<2",
    "sentencepiece>=0.2.3,<0.3",  # 0.2.3 gives ids as arrays
    "tokenizers>=0.21,<0.24",  # vocabularies of encoders (BERT, RoBERTa); encode_batch_fast is there from 0.20 on
    "urllib3>=2.2,<3",
    "zstandard>=0.22,<1",
]
# What finds the language of a text, its model inside the package; only for `--filter language`.
LANGUAGE = ["py3langid>=0.4,<0.5"]
# Pages and their drawings; not in the base, because workers that prepare draw nothing.
REPORT = ["jinja2>=3.1,<4", "matplotlib>=3.9,<4"]
JAX = "jax>=0.10,<0.13"  # programs run by its PJRT client
# The TPU compiler, on a TPU VM also the driver. It runs programs of any jax up to its own age, so a range is enough; the extra
# `jax[tpu]` would ask for one old version (jax 0.10.2: 0.0.42.*), by whose estimates the figures in docs/ were not made.
LIBTPU = "libtpu>=0.0.42,<0.1"
# TensorFlow runs nothing on an accelerator here, so the wheel without CUDA does where there is one. There is no wheel at all for
# Python 3.14: there the extra installs the rest, and `train` says so in a sentence.
TRAIN = [
    "tensorflow-cpu>=2.20,<2.22; python_version < '3.14' and sys_platform == 'linux' and platform_machine == 'x86_64'",
    "tensorflow>=2.20,<2.22; python_version < '3.14' and (sys_platform != 'linux' or platform_machine != 'x86_64')",
    JAX,
    "sacrebleu>=2.5,<3",
    "rouge-score>=0.1.2,<0.2",
    "tensorboard>=2.20,<2.21",
]

setup(
    name="t5prep",
    version=runpy.run_path(str(HERE / "t5prep" / "version.py"))["__version__"],
    description="Text from Kaggle, Zenodo, the Hugging Face Hub or a disk to a trained T5, by way of verified TFRecord shards",
    long_description=(HERE / "README.md").read_text(encoding="utf-8") if (HERE / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    author="The t5prep authors",
    license="Apache-2.0",
    keywords=["t5", "apache-beam", "tfrecord", "tpu", "sentencepiece", "dataset"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",  # preparing; TensorFlow has no wheel for it
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing",
        "Typing :: Typed",
    ],
    python_requires=">=3.11",
    # So an editable installation is one folder on the path, and a clone named t5prep in the current folder does not hide it.
    package_dir={"": "."},
    packages=find_packages(include=["t5prep", "t5prep.*", "pipelines", "pipelines.*"]),
    ext_modules=[in_c("t5prep")],
    cmdclass={"build_ext": BuildExt},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},  # one wheel for each Python from 3.11 on
    package_data={
        "t5prep": [
            "native/*.[ch]",
            "*.pyi",
            "py.typed",
            "sources/sample/*",
            "training/settings/recipes/*.toml",
            "report/templates/*",
        ]
    },
    install_requires=BASE,
    extras_require={
        "dataflow": ["apache-beam[gcp]>=2.77,<2.78"],
        "train": TRAIN,
        # TensorFlow reads data and lowers the model on the CPU; jax runs it with the libtpu that `plan` compiles with.
        "tpu": [*TRAIN, LIBTPU],
        # The wheel of jax's CUDA plugin brings CUDA and cuDNN; the machine needs NVIDIA's driver alone.
        "gpu": [*TRAIN, JAX.replace("jax", "jax[cuda12]", 1)],
        "plan": [JAX, LIBTPU],
        "language": LANGUAGE,
        "report": REPORT,
        "dev": [
            *LANGUAGE,
            *REPORT,
            "hypothesis>=6.100,<7",
            "mypy>=1.15,<3",
            "pytest>=8,<10",
            "pytest-xdist>=3.6,<4",
            "ruff>=0.12,<1",
            "safetensors>=0.5,<1",
            "transformers>=5,<6",  # which reads what is exported; t5prep does without
            "zensical>=0.0.73,<0.2; python_full_version >= '3.11.5'",  # builds the site (make docs)
        ],
    },
    entry_points={"console_scripts": ["t5prep = t5prep.cli:main"]},
)
