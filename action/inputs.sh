#!/usr/bin/env bash
# Checks the inputs of the action before anything runs.
set -euo pipefail

fail() {
    local message=${1//'%'/%25}
    message=${message//$'\r'/%0D}
    echo "::error title=traceopt::${message//$'\n'/%0A}"
    exit 2
}

[ -n "$RUN$TRACES" ] || fail "set what to record (run: train.py) or what to analyze (traces: logs)"
[ -z "$RUN" ] || [ -z "$TRACES" ] || fail "set either run or traces, not both"
[[ "$LABEL" =~ ^[A-Za-z0-9_.-]{1,80}$ ]] || fail "label: use at most 80 letters, digits, dots and dashes"
case "$COMMENT" in
    changed | always | never) ;;
    *) fail "comment: use changed, always or never" ;;
esac
[ -n "$RUN" ] || [ -z "$RUN_OPTIONS" ] || fail "run-options: they need a script to record (run: train.py)"
for words in "$RUN" "$RUN_OPTIONS" "$TRACES" "$OPTIONS" "$FAIL_ON"; do
    xargs -n 1 <<<"$words" >/dev/null 2>&1 || fail "unclosed quote: $words"
done
