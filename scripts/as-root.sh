#!/bin/sh
# Runs a command as root in the caller's environment. For `go test -exec`: the
# tests are compiled by the user and only run by root, so that no file of root
# ends up among the user's. Never asks for a password; scripts/test.sh has.
if [ "$(id -u)" -eq 0 ]; then
	exec "$@"
fi
exec sudo -n -E env "PATH=$PATH" "HOME=$HOME" "$@"
