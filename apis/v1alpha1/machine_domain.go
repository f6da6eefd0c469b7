package v1alpha1

// MachineDomain is the machine as its guest sees it.
type MachineDomain struct {
	// +optional
	Machine *DomainMachine `json:"machine,omitempty"`
	// +optional
	Features *DomainFeatures `json:"features,omitempty"`
	// +optional
	Firmware *DomainFirmware `json:"firmware,omitempty"`
}

// DomainMachine is the board.
type DomainMachine struct {
	// Machine type of QEMU. Example: pc-q35.
	// +kubebuilder:validation:Enum=pc-q35;pc-i440fx
	Type string `json:"type"`
}

// DomainFeatures switch features of the hypervisor.
type DomainFeatures struct {
	// Whether the guest has ACPI, which a clean shutdown needs. Default: true.
	// +optional
	ACPI *bool `json:"acpi,omitempty"`
	// Whether the guest has an APIC. Default: true. Proxmox VE cannot switch it off.
	// +optional
	APIC *bool `json:"apic,omitempty"`
	// Enlightenments for Windows guests.
	// +optional
	HyperV *bool `json:"hyperv,omitempty"`
}

// DomainFirmware is what starts the guest.
type DomainFirmware struct {
	// UEFI or BIOS. Example: {efi: true}.
	Bootloader Bootloader `json:"bootloader"`
}

// Bootloader is UEFI or BIOS.
//
// +kubebuilder:validation:XValidation:rule="!has(self.secureBoot) || !self.secureBoot || (has(self.efi) && self.efi)",message="secureBoot needs UEFI: set efi to true as well"
type Bootloader struct {
	// Whether the machine boots by UEFI instead of BIOS.
	// +optional
	EFI bool `json:"efi,omitempty"`
	// Whether UEFI Secure Boot is enabled. Requires efi: true.
	// +optional
	SecureBoot bool `json:"secureBoot,omitempty"`
}
