#!/usr/bin/env bash
# Makes the virtual environment, once. `make setup` calls it when pyproject.toml or constraints.txt is newer.
#   tools/set_up.sh VENV [PYTHON]
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
python=$(tools/check_prerequisites.sh "${2:-}")

if [ ! -x "$venv/bin/python" ]; then
    echo "Making the virtual environment $venv with $python"
    "$python" -m venv "$venv"
fi

# A user's pip configuration may say where packages come from (kept), but not where they go or whether their
# dependencies come along. PYTHONPATH would show pip this folder as a package already installed.
unset PYTHONPATH PYTHONHOME
export PIP_USER=0 PIP_TARGET= PIP_PREFIX= PIP_ROOT= PIP_NO_DEPS=0 PIP_REQUIRE_HASHES=0 PIP_CONSTRAINT=
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
echo "Installing Lotan and what it needs (the first time: some minutes; torch alone is gigabytes)"
# A plain path to this folder, so that a folder that is called lotan beside a script does not hide the package.
if ! "$venv/bin/python" -m pip install --quiet --editable '.[dev]' --constraint constraints.txt \
    --config-settings editable_mode=compat; then
    printf '\n  pip could not install all that is needed: what it says above names the package. It needs a network and PyPI, or a
           mirror that your pip configuration names (pip config list). Then run the same command again.\n' >&2
    exit 1
fi
