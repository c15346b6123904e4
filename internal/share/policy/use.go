package policy

import (
	"errors"
	"fmt"

	v1 "github.com/weir-project/weir/api/v1"
)

// Traffic class values take effect only in containers with traffic classes: class auto has
// all three, class ef has EF and, for the excess, BE; in a container of class af or be all
// packets are alike.

func checkEFMaxUse(p v1.Policy) error {
	switch p.Class {
	case v1.ClassEF, v1.ClassAuto:
		return nil
	case v1.ClassNone:
		return errors.New("a maximum of EF needs traffic classes; set the class to auto or ef, or remove it")
	}
	return fmt.Errorf("all of its traffic is %s, none is EF; set the class to auto or ef, or remove the maximum of EF", p.Class)
}

func checkAFMinUse(p v1.Policy) error {
	switch p.Class {
	case v1.ClassAuto:
		return nil
	case v1.ClassNone:
		return errors.New("a minimum of AF needs traffic classes; set the class to auto, or remove it")
	case v1.ClassAF:
		return errors.New("all of its traffic is af, and has the whole share; set the class to auto, or remove the minimum of AF")
	}
	return fmt.Errorf("all of its traffic is %s, none is AF; set the class to auto, or remove the minimum of AF", p.Class)
}

func checkDSCPUse(p v1.Policy) error {
	switch {
	case p.DSCP == v1.DSCPNone || p.Class == v1.ClassAuto:
		return nil
	case p.Class == v1.ClassNone:
		return errors.New("the DSCP field is for traffic classes; set the class to auto (or, to mark alone, to ef, af or be), or remove it")
	case TrustsDSCP(p):
		return fmt.Errorf("all of its traffic is %s, for any DSCP field; set the class to auto, or write mark", p.Class)
	}
	return nil
}

// OfUse returns v without the values that have no effect in a container of that class.
func (v Values) OfUse(class v1.Class) Values {
	p := v1.Policy{Class: class}
	if checkEFMaxUse(p) != nil {
		v.EFMax = nil
	}
	if checkAFMinUse(p) != nil {
		v.AFMin = nil
	}
	if v.DSCP != nil {
		if p.DSCP = *v.DSCP; checkDSCPUse(p) != nil {
			v.DSCP = nil
		}
	}
	return v
}

// checkUse returns an error for changed values that would have no effect on p.
func checkUse(changed Values, p v1.Policy) error {
	var errs []error
	if changed.EFMax != nil {
		errs = append(errs, checkEFMaxUse(p))
	}
	if changed.AFMin != nil {
		errs = append(errs, checkAFMinUse(p))
	}
	if changed.DSCP != nil {
		errs = append(errs, checkDSCPUse(p))
	}
	return errors.Join(errs...)
}
