#!/bin/sh
# Makes Debian's cloud-init and netplan available to the tests: the packages are unpacked,
# not installed, into ${XDG_CACHE_HOME:-$HOME/.cache}/vitistack/cloudinit, so that they
# configure nothing on this machine. Existing files are kept.
set -eu
root=${XDG_CACHE_HOME:-$HOME/.cache}/vitistack/cloudinit
[ -e "$root/complete" ] && exit 0
echo "Unpacking cloud-init and netplan ..."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work"
packages="cloud-init netplan.io libnetplan0 libglib2.0-0 libyaml-0-2 python3-configobj python3-jinja2 python3-jsonpatch python3-json-pointer
  python3-jsonschema python3-attr python3-pyrsistent python3-yaml python3-requests python3-urllib3 python3-idna python3-certifi
  python3-chardet python3-charset-normalizer python3-oauthlib python3-six python3-markupsafe"
# shellcheck disable=SC2086
apt-get download -qq $packages >/dev/null 2>&1 || { apt-get update -qq && apt-get download -qq $packages >/dev/null; }
rm -rf "$root" && mkdir -p "$root"
for package in ./*.deb; do dpkg -x "$package" "$root"; done
: >"$root/complete"
