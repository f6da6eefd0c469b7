# Function of the scripts that take packages from a release of Debian which may not be the machine's.
# shellcheck shell=sh
# A script that reads this file may use these. DEBIAN_MIRROR names another mirror than deb.debian.org.
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# private_apt FOLDER SUITE: has apt use one release of Debian, and a folder in place of the sources, the lists and the installed packages
# of this machine, so that neither matter.
private_apt() {
	mkdir -p "$1/lists/partial" "$1/archives/partial"
	: >"$1/status"
	printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$2" >"$1/sources.list"
	cat >"$1/apt.conf" <<-CONF
		Dir::Etc::parts "/dev/null";
		Dir::Etc::main "/dev/null";
		Dir::Etc::sourcelist "$1/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
		Dir::State "$1";
		Dir::State::lists "$1/lists";
		Dir::State::status "$1/status";
		Dir::Cache "$1";
		Dir::Cache::archives "$1/archives";
		APT::Sandbox::User "root";
		APT::Install-Recommends "false";
		// A mirror may lag behind, and this machine's clock may be ahead. The
		// packages are signed in any case, and serve tests only.
		Acquire::Check-Valid-Until "false";
		Acquire::Languages "none";
		Acquire::Retries "3";
	CONF
	export APT_CONFIG="$1/apt.conf"
}
