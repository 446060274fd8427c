# Three hosts on one PostgreSQL behind HAProxy, which gives each request to the next of them, as functions for the suites' scripts.
# Needs haproxy, and Debian's postgresql-15, which is unpacked below target/postgresql where it is not installed.

cluster_database=
cluster_processes=()

# Sets `programs` to the folder with PostgreSQL's.
find_postgresql() {
  programs=/usr/lib/postgresql/15/bin
  [[ ! -x $programs/initdb ]] || return 0
  local unpacked=$PWD/target/postgresql work
  programs=$unpacked/usr/lib/postgresql/15/bin
  export LD_LIBRARY_PATH=$unpacked/usr/lib/x86_64-linux-gnu
  [[ ! -x $programs/initdb ]] || return 0
  work=$(mktemp -d)
  (
    cd "$work"
    apt-get download -qq -o APT::Sandbox::User=root postgresql-15 libpq5 libicu72 libxslt1.1 libldap-2.5-0 libxml2
    for package in *.deb; do dpkg-deb --extract "$package" unpacked; done
  )
  rm -rf "$unpacked"
  mv "$work/unpacked" "$unpacked"
  rm -rf "$work"
}

# Runs a program as an ordinary user: PostgreSQL does not start as root.
as_nobody() {
  if [[ $(id -u) -eq 0 ]]; then setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; else "$@"; fi
}

start_database() {
  find_postgresql
  cluster_database=$(mktemp -d -p "$([[ -d /dev/shm ]] && echo /dev/shm || echo /tmp)" bulkhead-cluster-XXXXXX)
  if [[ $(id -u) -eq 0 ]]; then chown 65534:65534 "$cluster_database"; fi
  (
    cd /
    as_nobody "$programs/initdb" -D "$cluster_database/data" -U bulkhead -E UTF8 --locale=C --auth=trust --no-sync --no-instructions
  ) >/dev/null
  (
    cd /
    as_nobody "$programs/postgres" -D "$cluster_database/data" -k "$cluster_database" -c listen_addresses='' -c max_connections=200
  ) >"$1/postgresql.log" 2>&1 &
  for _ in $(seq 600); do
    if grep -qs ready "$cluster_database/data/postmaster.pid"; then return; fi
    sleep 0.1
  done
  cat "$1/postgresql.log" >&2
  return 1
}

# Starts everything in a folder, each host with this configuration, which has no [store]. Sets `url` to the address of all, and writes what
# the hosts say to `host.log` of the folder.
start_cluster() { # HOST-PROGRAM CONFIGURATION FOLDER
  local host=$1 configuration=$2 folder=$3 name servers= port
  command -v haproxy >/dev/null || { echo "haproxy is missing" >&2; return 1; }
  mkdir "$folder"
  start_database "$folder"
  printf 'host=%s dbname=postgres user=bulkhead' "$cluster_database" >"$folder/database"
  for name in one two three; do
    {
      cat "$configuration"
      printf '[store]\nengine = "postgres"\nurl_file = "%s"\n[cluster]\nname = "%s"\n' "$folder/database" "$name"
    } >"$folder/$name.toml"
    mkdir "$folder/$name"
    # What the first one has compiled.
    if [[ $name != one ]]; then cp -r "$folder/one/cache" "$folder/one/cache.key" "$folder/$name"; fi
    "$host" serve --config "$folder/$name.toml" --listen 127.0.0.1:0 --data "$folder/$name" >"$folder/$name.out" 2>>"$folder/host.log" &
    cluster_processes+=($!)
    for _ in $(seq 900); do
      url=$(sed -n 's/^bulkhead: listening on //p' "$folder/$name.out")
      [[ -z $url ]] || break
      kill -0 $! 2>/dev/null || break
      sleep 0.1
    done
    [[ -n $url ]] || { cat "$folder/host.log" >&2; echo "a host does not listen" >&2; return 1; }
    url=${url#http://}
    servers+="  server $name ${url%%/*}"$'\n'
  done
  port=$(python3 -c 'import socket; free = socket.socket(); free.bind(("127.0.0.1", 0)); print(free.getsockname()[1])')
  cat >"$folder/haproxy.cfg" <<HAPROXY
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend clients
  bind 127.0.0.1:$port
  default_backend hosts
backend hosts
  balance roundrobin
$servers
HAPROXY
  haproxy -db -f "$folder/haproxy.cfg" >"$folder/haproxy.log" 2>&1 &
  cluster_processes+=($!)
  url=http://127.0.0.1:$port/mcp
  for _ in $(seq 100); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return; fi
    sleep 0.1
  done
  cat "$folder/haproxy.log" >&2
  return 1
}

stop_cluster() {
  local process
  for process in "${cluster_processes[@]}"; do kill "$process" 2>/dev/null || true; done
  for process in "${cluster_processes[@]}"; do wait "$process" 2>/dev/null || true; done
  cluster_processes=()
  if [[ -s $cluster_database/data/postmaster.pid ]]; then kill -INT "$(head -n 1 "$cluster_database/data/postmaster.pid")" || true; fi
  if [[ -n $cluster_database ]]; then
    for _ in $(seq 50); do
      [[ -e $cluster_database/data/postmaster.pid ]] || break
      sleep 0.1
    done
    rm -rf "$cluster_database"
  fi
  cluster_database=
}
