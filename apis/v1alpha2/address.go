package v1alpha2

// IPFamily is IPv4 or IPv6.
// +kubebuilder:validation:Enum=IPv4;IPv6
type IPFamily string

// The two families.
const (
	IPv4 IPFamily = "IPv4"
	IPv6 IPFamily = "IPv6"
)

// IPv4CIDR is an IPv4 prefix without host bits.
//
// +kubebuilder:validation:MaxLength=18
// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self).ip().family() == 4",message="write an IPv4 prefix, for example 192.168.10.0/24"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="the prefix has host bits set: write its network address, for example 192.168.10.0/24 for 192.168.10.7/24"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).prefixLength() <= 31",message="a prefix of one address has no room for machines: write a larger one, for example 192.168.10.0/24"
type IPv4CIDR string

// IPv6CIDR is an IPv6 prefix without host bits.
//
// +kubebuilder:validation:MaxLength=49
// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self).ip().family() == 6",message="write an IPv6 prefix, for example 2001:db8:10::/64"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="the prefix has host bits set: write its network address, for example 2001:db8:10::/64 for 2001:db8:10::7/64"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).prefixLength() <= 127",message="a prefix of one address has no room for machines: write a larger one, for example 2001:db8:10::/64"
type IPv6CIDR string

// IPv4Address is one IPv4 address.
//
// +kubebuilder:validation:MaxLength=15
// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4",message="write an IPv4 address, for example 192.168.10.1"
type IPv4Address string

// IPv6Address is one IPv6 address.
//
// +kubebuilder:validation:MaxLength=45
// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 6",message="write an IPv6 address, for example 2001:db8:10::1"
type IPv6Address string

// VLANID is an IEEE 802.1Q VLAN, 0 meaning untagged. 4095 is reserved.
//
// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 4094",message="a VLAN is a number from 0 (untagged) to 4094"
type VLANID int32
