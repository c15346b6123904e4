// Package deb installs the released Debian packages and the image, uses them and removes them.
package deb
