# What the suites install over the network, as functions for their scripts. Each is done once: a stamp comes last, so an interrupted
# installation is made anew; and scripts that need the same wait for the first.

# Installs packages of npm into a folder of their own, unless exactly these are there.
install_node() { # FOLDER PACKAGE...
  local folder=$1
  shift
  mkdir -p "$(dirname "$folder")"
  (
    flock 9
    [[ "$(cat "$folder/version" 2>/dev/null)" != "$*" ]] || exit 0
    rm -rf "$folder"
    mkdir -p "$folder"
    printf '{"private": true, "type": "module", "allowScripts": {"node": true}}\n' >"$folder/package.json"
    npm install --prefix "$folder" --no-audit --no-fund --no-package-lock --loglevel=error "$@" >&2
    printf '%s' "$*" >"$folder/version"
  ) 9>"$folder.lock"
}

# Installs packages of the Python package index into an environment of their own, unless exactly these are there.
install_python() { # FOLDER PACKAGE...
  local folder=$1
  shift
  mkdir -p "$(dirname "$folder")"
  install_uv
  (
    flock 9
    [[ "$(cat "$folder/version" 2>/dev/null)" != "$*" ]] || exit 0
    rm -rf "$folder"
    # pip compiles every module that it installs, and takes fifteen times as long.
    if ! { "$uv" venv --quiet --no-python-downloads --python "$(command -v python3)" "$folder" \
      && "$uv" pip install --quiet --python "$folder/bin/python" "$@"; } >&2; then
      echo "uv installs none of $*; pip tries" >&2
      rm -rf "$folder"
      python3 -m venv "$folder"
      "$folder/bin/pip" install --quiet --disable-pip-version-check "$@" >&2
    fi
    printf '%s' "$*" >"$folder/version"
  ) 9>"$folder.lock"
}

# The installer of the environments, in a folder of its own: `uv`.
install_uv() {
  local version=0.13.9 folder=$PWD/target/uv
  uv=$folder/bin/uv
  mkdir -p target
  (
    flock 9
    [[ "$(cat "$folder/version" 2>/dev/null)" != "$version" ]] || exit 0
    rm -rf "$folder"
    python3 -m venv "$folder"
    "$folder/bin/pip" install --quiet --disable-pip-version-check "uv==$version" >&2
    printf '%s' "$version" >"$folder/version"
  ) 9>"$folder.lock"
}

# Node.js for what wants a newer one than Debian's, in the folder `newer_node`. `.ci/run` has it there as well.
install_newer_node() {
  install_node target/node node@22.23.3
  newer_node=$PWD/target/node/node_modules/.bin
}
