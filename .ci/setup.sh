#!/usr/bin/env bash
# Makes .venv from the lock files: `setup.sh base` for replays, `dev` with the tools of the tests, `export` with torch too.
# Needs Linux and Python 3.11 or 3.12 with venv. Quick when nothing changed (a stamp holds the hash of all it was made
# from). After a kill it starts over, with downloads from pip's cache: a half-installed package can look whole to pip.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { echo "setup: $*" >&2; exit 3; }

level=${1:-base}
case $level in
  base) enough="base dev export" ;;  # each holds all that those before it do
  dev) enough="dev export" ;;
  export) enough="export" ;;
  *) die "expected base, dev or export, got '$level'" ;;
esac
[[ $(uname -s) == Linux ]] || die "expected Linux, got $(uname -s): the locked files are for Linux alone"

unfinished=.cache/setup-unfinished
stamp=.venv/.handrail-setup
made_from() {  # all that decides what is installed
  cat requirements/*.lock pyproject.toml .ci/setup.sh | sha256sum
  .venv/bin/python -VV
}

if [[ ! -e $unfinished && -x .venv/bin/python && -f $stamp ]]; then
  made=$(cat "$stamp")
  now=$(made_from)
  for one in $enough; do
    [[ $made == "$one $now" ]] && exit 0
  done
fi

find_python() {
  local candidate
  for candidate in "${PYTHON:-python3.11}" python3.11 python3.12 python3 python; do
    if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' \
        >/dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
  die "found no Python 3.11 or 3.12 with venv: install one (Debian: apt-get install python3 python3-venv)" \
      "or name one: make PYTHON=/path/to/python3.12 ..."
}

if [[ -e $unfinished ]]; then
  echo "setup: an earlier set-up was cut short, starting over"
  rm -rf .venv
fi
mkdir -p .cache
touch "$unfinished"
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  python=$(find_python)
  echo "setup: making .venv with $("$python" -V)"
  "$python" -m venv --clear .venv || die "$python can't make a virtual environment"
fi

install() {
  .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check --no-input --retries 8 "$@" \
    || die "pip could not install ($*): see its message above, then run the same command again"
}
echo "setup: installing locked requirements ($level); a minute or two, more the first time"
lock=$level
[[ $level == export ]] && lock=dev
install --require-hashes --only-binary :all: -r requirements/"$lock".lock
if [[ $level == export ]]; then
  # --no-deps: all of them ask for torch, which isn't locked: which build of it fits is the machine's matter.
  install --require-hashes --only-binary :all: --no-deps -r requirements/export.lock
  install 'torch==2.13.*'
fi
install --require-hashes --only-binary :all: --no-deps -r requirements/aria.lock
install --no-deps --no-build-isolation --editable .

echo "$level $(made_from)" > "$stamp"
rm -f "$unfinished"
