#!/bin/sh
# A SuperLink and two SuperNodes as processes on this machine, TLS between them: ./deploy.sh RECORDED
# Everything that is written besides RECORDED goes to a scratch folder; all processes are stopped at the end, by number.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
RECORDED=$(cd "$1" && pwd)
scratch=$(mktemp -d)
export RECORDED FLWR_HOME="$scratch/flower" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
port=${PORT:-18443}
started=""
stop() {
    for pid in $started; do kill "$pid" 2>/dev/null || true; done
    for pid in $started; do wait "$pid" 2>/dev/null || true; done
    [ -n "${KEEP:-}" ] || rm -rf "$scratch"
}
trap stop EXIT
trap 'exit 130' INT TERM

# A certificate authority of our own, and a certificate for this machine only.
cd "$scratch"
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=example authority" -keyout ca.key -out ca.crt 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj "/CN=localhost" -keyout server.key -out server.csr 2>/dev/null
printf "subjectAltName=DNS:localhost,IP:127.0.0.1\n" >names
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.crt 2>/dev/null
mkdir -p "$FLWR_HOME"
cat >"$FLWR_HOME/config.toml" <<END
[superlink]
default = "here"
[superlink.here]
address = "127.0.0.1:$port"
root-certificates = "$scratch/ca.crt"
END

tls="--ssl-certfile server.crt --ssl-keyfile server.key --ssl-ca-certfile ca.crt"
# shellcheck disable=SC2086
flower-superlink --host 127.0.0.1 --port "$port" $tls >superlink.log 2>&1 &
started="$started $!"
for node in 0 1; do
    # shellcheck disable=SC2086
    flower-supernode --superlink "127.0.0.1:$port" --root-certificates ca.crt --host 127.0.0.1 \
        --port $((port + 1 + node)) $tls --node-config "partition-id=$node num-partitions=2" >"node$node.log" 2>&1 &
    started="$started $!"
done

for _ in 1 2 3 4 5 6; do
    sleep 5
    if flwr run "$here" here --stream; then break; fi # until the SuperLink listens
done
test -f "$RECORDED/update-00003.json" || { tail -n 30 "$scratch"/*.log >&2; exit 1; }
