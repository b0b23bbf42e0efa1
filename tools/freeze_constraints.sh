#!/usr/bin/env bash
# Prints constraints.txt for the environment given: exact versions, no addresses. What torch's CUDA build brings along is
# left out, because another build of torch (CPU, another CUDA) does not need it; so is pip.
#   tools/freeze_constraints.sh .venv > constraints.txt
set -euo pipefail
venv=${1:-.venv}
echo "# Versions measured to work together. Written by tools/freeze_constraints.sh; no addresses, so any index serves."
"$venv/bin/python" -m pip freeze --all --exclude-editable | grep -E '^[A-Za-z0-9._-]+==' | grep -viE '^(lotan|pip=|nvidia-|cuda-|triton)'
