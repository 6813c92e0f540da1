#!/bin/sh
# Compares this host with what a broker needs.
self=$(readlink -f -- "$0") && . "${self%/*}/launch.inc" && run_tool check "$@"
