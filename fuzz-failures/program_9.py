"""Written by tests/fuzz/number_writer.py, seed 4."""

from typing import NamedTuple 

import numpy as np 
from gymnasium .spaces import Box ,Discrete ,MultiDiscrete 

import operant 
from operant .lang import (
abs ,atan ,atan2 ,ceil ,clip ,cos ,exp ,floor ,log ,logical_not ,maximum ,minimum ,normal ,pi ,
randint ,sign ,sin ,sqrt ,tan ,tanh ,to_float ,to_int ,uniform ,where ,
)


def register (x ):
    return where (abs (x )<1e6 ,x ,0.5 )


class Program (operant .Env ):
    random_numbers =64 
    observation_space =Box (-np .inf ,np .inf ,(4 ,),np .float32 )
    action_space =Box (-2.0 ,2.0 ,(2 ,))
    max_episode_steps =9 

    class Params (NamedTuple ):
        ticks :float =9.81 
        Args :float =55.0 
        count :int =3 
        hard :bool =True 

    class State (NamedTuple ):
        float_of :float 
        f32 :int 

    def reset (random ,params ):
        return Program .State (register ((random [8 ]%random [37 ])),maximum (1 ,to_int (random [39 ]*41.0 )))

    def step (state ,action ,random ,params ):
        FAST =(atan2 (random [36 ],params .ticks )<floor (random [25 ]))
        m_3 =abs (where (FAST ,state .f32 ,0 ))
        whole64 =register (((random [1 ]/3 )-(random [46 ]//83.0 )))
        return Program .State (register ((floor (uniform (random [56 ],whole64 ,2.0 ))*where ((FAST |FAST ),cos (whole64 ),sin (whole64 )))),(((state .f32 //10 )&(state .f32 |3 ))&(to_int (whole64 /47.0 )<<27 ))),register (((whole64 *state .float_of )/abs (random [7 ]))),(random [2 ]<0.1 )&(~FAST )

    def observe (state ,params ):
        return (register (register (log (state .float_of ))),register (((-state .float_of )-register (state .float_of ))),register ((minimum (state .float_of ,1e-40 )/(state .float_of %1e-40 ))),register (((state .float_of *-0.0 )-(state .f32 <<13 ))),)
