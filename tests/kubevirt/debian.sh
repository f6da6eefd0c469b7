# Function of the scripts that install Debian into a folder.
# shellcheck shell=sh
debian() { # debian FOLDER PACKAGES [OPTION...]: installs packages into a new folder
	echo "Installing Debian into $1 ..."
	folder=$1 packages=$2
	shift 2
	rm -rf "$folder"
	mmdebstrap --quiet --variant=minbase --include="$packages" --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' "$@" bookworm "$folder"
	rm -rf "$folder"/dev/* "$folder"/var/lib/apt/* "$folder"/var/cache/*
}
